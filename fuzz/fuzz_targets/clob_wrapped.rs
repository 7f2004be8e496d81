#![no_main]

#[path = "../targets/clob_wrapped.rs"]
mod clob_wrapped;

libfuzzer_sys::fuzz_target!(|input: &[u8]| clob_wrapped::run(input));
