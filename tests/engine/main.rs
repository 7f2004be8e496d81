//! The engine from outside: scenarios as text tables, and random sequences of commands with a naive
//! ledger as their oracle.

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
