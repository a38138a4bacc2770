"""The page of one or several finished runs; each kind of run is one file here and one line in `kinds`."""
