//! The engine from outside: scenarios as text tables, and a naive ledger as the oracle of random
//! sequences of commands.

mod accounts;
mod actions;
mod bounds;
mod comments;
mod contradictions;
mod escalation;
mod fills;
mod idempotency;
mod keys;
mod naive;
mod properties;
mod ratio;
mod refusals;
mod report;
mod restore;
mod script;
mod settlement;
mod world;
