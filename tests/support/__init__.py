"""What tests share: models made small or by hand, files, pages, and second ways to compute."""
