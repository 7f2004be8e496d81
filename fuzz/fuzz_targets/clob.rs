#![no_main]

#[path = "../targets/clob.rs"]
mod clob;

libfuzzer_sys::fuzz_target!(|input: &[u8]| clob::run(input));
