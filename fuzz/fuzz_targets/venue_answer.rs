#![no_main]

#[path = "../targets/venue_answer.rs"]
mod venue_answer;

libfuzzer_sys::fuzz_target!(|input: &[u8]| venue_answer::run(input));
