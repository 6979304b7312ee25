"""Files of this machine: selection, and extraction of their text in a process of their own."""
