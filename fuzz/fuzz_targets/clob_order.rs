#![no_main]

#[path = "../targets/clob_order.rs"]
mod clob_order;

libfuzzer_sys::fuzz_target!(|input: &[u8]| clob_order::run(input));
