pragma circom 2.0.0;
include "circomlib/circuits/poseidon.circom";
include "circomlib/circuits/switcher.circom";
include "circomlib/circuits/bitify.circom";

// A leaf is in the tree with this root, at a position that is not told.
template MerkleProof(levels) {
    signal input leaf;
    signal input position;
    signal input siblings[levels];
    signal output root;

    component bits = Num2Bits(levels);
    bits.in <== position;
    component switchers[levels];
    component hashes[levels];
    signal nodes[levels + 1];
    nodes[0] <== leaf;
    for (var i = 0; i < levels; i++) {
        switchers[i] = Switcher();
        switchers[i].sel <== bits.out[i];
        switchers[i].L <== nodes[i];
        switchers[i].R <== siblings[i];
        hashes[i] = Poseidon(2);
        hashes[i].inputs[0] <== switchers[i].outL;
        hashes[i].inputs[1] <== switchers[i].outR;
        nodes[i + 1] <== hashes[i].out;
    }
    root <== nodes[levels];
}

component main = MerkleProof(4);
