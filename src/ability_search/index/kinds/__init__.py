"""What can be said of a document beside its text: title, summary, keywords, propositions. Pure."""
