"""The places where tokens are kept: the keyring of the machine, a private file, a store that many machines share."""
