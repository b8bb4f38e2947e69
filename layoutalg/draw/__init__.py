"""Pictures of layouts and of what hardware makes of them: SVG text, no dependencies."""
