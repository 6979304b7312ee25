"""The components of a network and of a stack: each is a context that runs in this process."""
