"""Starting the processes of a run, or finding that somebody else did."""
