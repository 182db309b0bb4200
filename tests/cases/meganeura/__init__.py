"""The tables of Meganeura's kinds, one module per family, named as the modules of `ir.meganeura.ops`."""
