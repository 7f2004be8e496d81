//! The engine from outside: scenarios as text tables, and random sequences of commands with a naive
//! ledger as their oracle.

mod accounts;
mod actions;
mod bounds;
mod comments;
mod contradictions;
mod delayed;
mod delayed_contradictions;
mod escalation;
mod fills;
mod idempotency;
mod keys;
mod naive;
mod naive_orders;
mod operators;
mod placing;
mod properties;
mod random_orders;
mod ratio;
mod refusals;
mod report;
mod reset;
mod resting;
mod resting_contradictions;
mod restore;
mod script;
mod settlement;
mod undo;
mod used;
mod visits;
mod world;
