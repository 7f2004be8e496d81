//! The address whose limits a request counts against, through a real proxy and a pretended one.
//!
//! The tests connect from this machine, so a server that trusts `127.0.0.1` treats them as its
//! proxy.

use paperbourse_test_support::Request;
use serde_json::json;

use super::expect::check_error;
use super::server::Server;

/// The status of a bootstrap with a new identity that the proxy forwards with these header lines.
fn bootstrap(server: &Server, subject: &str, lines: &[&str]) -> u16 {
    let token = server.token(subject, None);
    let request = Request::post("/v1/keys/bootstrap", &json!({})).bearer(&token);
    let forward = |request: Request, line: &&str| request.header("x-forwarded-for", *line);
    server.send(&lines.iter().fold(request, forward)).status
}

/// Sends each row once, in order; a bucket holds three, and refills one a minute.
#[track_caller]
fn check(flags: &[&str], rows: &[(&[&str], u16)]) {
    let limits = ["--tier", "free=unlimited/unlimited/2/5", "--bootstrap-rate", "1/3"];
    let server = Server::start(&[&limits[..], flags].concat());
    for (number, (lines, expected)) in rows.iter().enumerate() {
        let status = bootstrap(&server, &format!("subject-{number}"), lines);
        assert_eq!(status, *expected, "row {number} of {flags:?}: {lines:?}");
    }
}

#[test]
fn clients_behind_one_proxy_have_buckets_of_their_own() {
    let one: &[&str] = &["203.0.113.1"];
    let other: &[&str] = &["203.0.113.2"];
    check(
        &["--trusted-proxy", "127.0.0.1"],
        &[
            (one, 201),
            (one, 201),
            (one, 201),
            (one, 429),
            (other, 201),
            // The client's own header comes before the address that the proxy adds.
            (&["198.51.100.7, 203.0.113.1"], 429),
            (&["198.51.100.8", "203.0.113.1"], 429),
            (&["203.0.113.2, 203.0.113.1"], 429),
            (&["::ffff:203.0.113.1"], 429),
            (other, 201),
            (other, 201),
            (other, 429),
        ],
    );
}

#[test]
fn a_client_without_a_trusted_proxy_cannot_claim_another_address() {
    for flags in [&[][..], &["--trusted-proxy", "10.0.0.0/8,fd00::/8"]] {
        check(
            flags,
            &[
                (&["203.0.113.1"], 201),
                (&["203.0.113.2"], 201),
                (&["10.0.0.1"], 201),
                (&["203.0.113.3"], 429),
                (&[], 429),
            ],
        );
    }
}

#[test]
fn a_chain_of_trusted_proxies_is_followed() {
    check(
        &["--trusted-proxy", "127.0.0.1", "--trusted-proxy", "10.0.0.0/8"],
        &[
            (&["203.0.113.1, 10.0.0.9"], 201),
            (&["203.0.113.1", "10.1.2.3"], 201),
            (&["192.0.2.1, 203.0.113.1, 10.0.0.9, 10.0.0.8"], 201),
            (&["203.0.113.1"], 429),
            // A hop without a usable header counts as the client.
            (&["nonsense, 10.0.0.7"], 201),
            (&["10.0.0.7"], 201),
            (&["unknown", "10.0.0.7"], 201),
            (&["nonsense, 10.0.0.7"], 429),
            (&["nonsense"], 201),
            (&[], 201),
        ],
    );
}

#[test]
fn an_ipv6_client_counts_by_its_network() {
    check(
        &["--trusted-proxy", "127.0.0.1"],
        &[
            (&["2001:db8:1:2::1"], 201),
            (&["2001:db8:1:2:ffff::2"], 201),
            (&["[2001:db8:1:2::3]:4711"], 201),
            (&["2001:db8:1:2:a:b:c:d"], 429),
            (&["2001:db8:1:3::1"], 201),
        ],
    );
}

/// All three limits count by the client's address, and none by the proxy's.
#[test]
fn every_limit_by_address_is_configurable_and_counts_by_client() {
    let server = Server::start(&[
        "--tier",
        "free=unlimited/unlimited/2/5",
        "--trusted-proxy",
        "127.0.0.1",
        "--public-rate",
        "1/2",
        "--bootstrap-rate",
        "1/1",
        "--failure-rate",
        "1/3",
    ]);
    let account = server.account();
    let public = Request::get("/v1/markets");
    let wrong = Request::get("/v1/orders").key("nonsense");
    let socket = Request::get("/v1/ws/prices?token=nonsense");
    let valid = Request::get("/v1/orders").key(&account.key);
    let bootstrap = |subject: String| {
        let token = server.token(&subject, None);
        Request::post("/v1/keys/bootstrap", &json!({})).bearer(&token)
    };
    for client in ["203.0.113.1", "2001:db8::1"] {
        let from = |request: &Request| {
            server.send(&request.clone().header("x-forwarded-for", format!("6.6.6.6, {client}")))
        };
        for (request, count, status) in [(&public, 2, 200), (&wrong, 3, 401)] {
            // Less than a second's worth of requests, but a slow machine may add some.
            let passed = (0..100).take_while(|_| from(request).status == status).count();
            assert!((count..100).contains(&passed), "{passed} of {count} from {client}");
        }
        // A socket's token is a credential too; the bucket is empty, or soon will be.
        assert!((0..100).any(|_| from(&socket).status == 429), "sockets from {client}");
        from(&bootstrap(format!("first-of-{client}"))).ok(201);
        check_error(&from(&bootstrap(format!("second-of-{client}"))), 429, "RATE_LIMIT_EXCEEDED");
        // A valid key is served, whatever else came from the address.
        for _ in 0..10 {
            from(&valid).ok(200);
        }
    }
}
