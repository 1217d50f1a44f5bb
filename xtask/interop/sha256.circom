pragma circom 2.0.0;
include "circomlib/circuits/sha256/sha256.circom";

// SHA-256 of 55 bytes, the most that fit into one block with their padding.
component main = Sha256(440);
