"""What a call says when it refuses."""

import os

import pytest


def refused(kind, call, *arguments, folder=None, **options):
    """The message of an error of a kind, without the folder, which differs from run to run."""
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    return str(caught.value) if folder is None else str(caught.value).replace(f"{folder}{os.sep}", "")
