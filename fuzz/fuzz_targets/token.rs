#![no_main]

#[path = "../targets/token.rs"]
mod token;

libfuzzer_sys::fuzz_target!(|input: &[u8]| token::run(input));
