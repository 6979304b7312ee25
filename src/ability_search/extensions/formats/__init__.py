"""Readers of further formats, and chunkers that follow their structure."""
