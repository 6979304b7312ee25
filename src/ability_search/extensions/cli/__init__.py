"""The command line: one module per command group, and the assembly of the components."""


def main() -> None:
    """Run the command line."""
    from ability_search.extensions.cli import app

    app.main()
