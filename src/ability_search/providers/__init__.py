"""Ports over the network; answers and errors of other systems are translated here."""
