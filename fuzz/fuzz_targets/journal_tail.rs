#![no_main]

#[path = "../targets/journal_tail.rs"]
mod journal_tail;

libfuzzer_sys::fuzz_target!(|input: &[u8]| journal_tail::run(input));
