"""The eight tools: their inputs, results and handlers."""
