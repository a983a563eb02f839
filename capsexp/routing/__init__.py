"""How votes become parent capsules: one module a procedure, each a page that reads like the paper's."""
