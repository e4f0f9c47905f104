"""The methods, one file each: a function of the file's name that returns its recipe."""
