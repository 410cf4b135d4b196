"""The user's data and functions: feeds from files and folders, labelled samples."""
