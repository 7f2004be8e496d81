#![no_main]

#[path = "../targets/venue_frame.rs"]
mod venue_frame;

libfuzzer_sys::fuzz_target!(|input: &[u8]| venue_frame::run(input));
