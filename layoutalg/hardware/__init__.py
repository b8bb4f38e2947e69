"""Facts about hardware: constants with their sources, element types, tensor memory, matrix instructions."""
