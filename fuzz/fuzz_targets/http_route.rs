#![no_main]

#[path = "../targets/http_route.rs"]
mod http_route;

libfuzzer_sys::fuzz_target!(|input: &[u8]| http_route::run(input));
