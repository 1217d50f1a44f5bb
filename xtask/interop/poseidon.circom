pragma circom 2.0.0;
include "circomlib/circuits/poseidon.circom";

// The hash of two numbers.
template Main() {
    signal input in[2];
    signal output out;
    component hash = Poseidon(2);
    hash.inputs[0] <== in[0];
    hash.inputs[1] <== in[1];
    out <== hash.out;
}

component main = Main();
