"""Send a migration's calls at its pace, as long as its phase lasts, and write down what fails."""
