#![no_main]

#[path = "../targets/trade_body.rs"]
mod trade_body;

libfuzzer_sys::fuzz_target!(|input: &[u8]| trade_body::run(input));
