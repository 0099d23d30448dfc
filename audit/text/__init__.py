"""Text as attackers write it: characters nobody sees, chat marks, one Unicode form."""
