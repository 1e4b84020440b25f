"""The stores of tokens: the keyring of the machine, a private file, a store that many machines share."""
