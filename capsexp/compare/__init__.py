"""Two sides of runs beside each other, by the rule of the tables: A, B, B − A with its interval, and a verdict."""
