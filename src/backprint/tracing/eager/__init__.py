"""Engine `eager`: one real step, recorded operator by operator, as straight-line code without updates in place."""
