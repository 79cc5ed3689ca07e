"""From silicon to data sheet: area, yield, cost, power and carbon of a chip, one law a function."""
