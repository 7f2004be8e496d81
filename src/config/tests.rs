use super::*;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    serve: ServeArgs,
}

/// Parses the flags of `serve`.
pub(crate) fn serve(flags: &[&str]) -> Result<ServeArgs, clap::Error> {
    let words = ["paperbourse"].iter().chain(flags);
    <Line as clap::Parser>::try_parse_from(words).map(|line| line.serve)
}

#[test]
fn address_limits_default_to_the_documented_ones() {
    let documented = AddressRules {
        public: BucketRule::PUBLIC_READS,
        bootstrap: BucketRule::BOOTSTRAP,
        failures: BucketRule::FAILED_CREDENTIALS,
    };
    let rule = |rate, burst| BucketRule::per_second(rate, burst).unwrap();
    for (flags, expected) in [
        (&[][..], Some(documented)),
        (&["--address-limits", "off"], None),
        (&["--public-rate", "1/2"], Some(AddressRules { public: rule(1, 2), ..documented })),
        (&["--bootstrap-rate", "60/2"], Some(AddressRules { bootstrap: rule(1, 2), ..documented })),
        (&["--failure-rate", "3/4"], Some(AddressRules { failures: rule(3, 4), ..documented })),
    ] {
        assert_eq!(serve(flags).unwrap().address_rules(), expected, "{flags:?}");
    }
    let error = serve(&["--public-rate", "10"]).unwrap_err().to_string();
    assert!(error.contains("not RATE/BURST, for example 10/20"), "{error}");
}

#[test]
fn account_limits_default_to_the_documented_ones() {
    let (keys, sockets) = (BucketRule::KEYS, BucketRule::SOCKETS);
    let documented = AccountRates { keys: Rate::Limited(keys), sockets: Rate::Limited(sockets) };
    let rule = |rate, burst| Rate::Limited(BucketRule::per_second(rate, burst).unwrap());
    for (flags, expected) in [
        (&[][..], documented),
        (&["--key-rate", "60/2"], AccountRates { keys: rule(1, 2), ..documented }),
        (&["--key-rate", "unlimited"], AccountRates { keys: Rate::Unlimited, ..documented }),
        (&["--socket-rate", "1/2"], AccountRates { sockets: rule(1, 2), ..documented }),
        (&["--socket-rate", "unlimited"], AccountRates { sockets: Rate::Unlimited, ..documented }),
    ] {
        assert_eq!(serve(flags).unwrap().account_rates(), expected, "{flags:?}");
    }
    let error = serve(&["--key-rate", "10"]).unwrap_err().to_string();
    assert!(error.contains("not RATE/BURST"), "{error}");
}

#[test]
fn proxies_may_be_repeated_or_separated_by_commas() {
    for flags in [
        &["--trusted-proxy", "10.0.0.5,fd00::/8"][..],
        &["--trusted-proxy", "10.0.0.5", "--trusted-proxy", "fd00::/8"],
    ] {
        let proxies = serve(flags).unwrap().trusted_proxies;
        let found: Vec<String> = proxies.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.5/32", "fd00::/8"]);
    }
    let error = serve(&["--trusted-proxy", "10.0.0.5/8"]).unwrap_err().to_string();
    assert!(error.contains("the network is 10.0.0.0/8"), "{error}");
}

#[test]
fn a_public_address_without_a_proxy_counts_as_exposed() {
    for (listen, proxy, is_exposed) in [
        ("127.0.0.1:8080", None, false),
        ("[::1]:8080", None, false),
        ("[::ffff:127.0.0.1]:8080", None, false),
        ("0.0.0.0:8080", None, true),
        ("192.0.2.1:8080", None, true),
        ("[::]:8080", None, true),
        ("[::]:8080", Some("10.0.0.5"), false),
    ] {
        let flags = proxy.map(|proxy| ["--trusted-proxy", proxy]);
        let flags: Vec<&str> =
            ["--listen", listen].into_iter().chain(flags.into_iter().flatten()).collect();
        let arguments = serve(&flags).unwrap();
        assert_eq!(arguments.is_exposed_at(arguments.listen), is_exposed, "{flags:?}");
    }
}

#[test]
fn one_address_gets_half_of_all_connections_by_default() {
    for (flags, all, expected) in [
        (&[][..], 10_000, 5_000),
        (&[], 3, 2),
        (&[], 1, 1),
        (&["--connections-per-address", "7"], 10_000, 7),
    ] {
        let per_address = serve(flags).unwrap().connections_per_address(all);
        assert_eq!(per_address, expected, "{flags:?} of {all}");
    }
}

#[test]
fn a_public_metrics_address_counts_as_exposed() {
    for (address, is_exposed) in
        [("127.0.0.1:9090", false), ("[::1]:9090", false), ("0.0.0.0:9090", true)]
    {
        let arguments = serve(&["--admin-listen", address]).unwrap();
        let address = arguments.admin_listen.unwrap();
        assert_eq!(ServeArgs::is_admin_exposed_at(address), is_exposed, "{address}");
    }
}

#[test]
fn a_node_of_a_cluster_has_no_lane() {
    let node = ["--cluster", "cluster.toml", "--node", "a"];
    for (flags, expected) in
        [(&[][..], true), (&["--lane", "off"], false), (&node, false), (&["--lane", "on"], true)]
    {
        assert_eq!(serve(flags).unwrap().has_lane(), expected, "{flags:?}");
    }
}

#[test]
fn numbers_out_of_range_are_refused() {
    assert_eq!(worker_count("1024").map(usize::from), Ok(1024));
    for text in ["0", "1025", "-1", "x"] {
        assert!(worker_count(text).is_err(), "{text}");
    }
    let percent = whole_number(1..=100_u32);
    assert_eq!((percent("1"), percent("100")), (Ok(1), Ok(100)));
    for text in ["0", "101", "-1", "1.5", "", "4294967297", "x"] {
        assert_eq!(percent(text).unwrap_err(), "not a whole number from 1 to 100", "{text}");
    }
    assert_eq!((segment_bytes("1048576"), segment_bytes("64M")), (Ok(1 << 20), Ok(64 << 20)));
    for text in ["5", "1048575", "1048577", "1049088", "1073745920", "2G"] {
        assert!(segment_bytes(text).is_err(), "{text}");
    }
}

#[test]
fn every_size_is_written_with_or_without_a_unit() {
    let arguments = serve(&["--memory-limit", "2G", "--snapshot-bytes", "64Mi"]).unwrap();
    assert_eq!((arguments.memory_limit, arguments.snapshot_bytes), (Some(2 << 30), 64 << 20));
    assert_eq!((arguments.archive_bytes, arguments.journal_segment_bytes), (10 << 30, 64 << 20));
    let sizes = <Line as clap::CommandFactory>::command();
    let sizes = sizes.get_arguments().filter_map(clap::Arg::get_long);
    for name in sizes.filter(|name| name.ends_with("bytes")) {
        assert!(serve(&[&format!("--{name}"), "1024K"]).is_ok(), "{name}");
    }
    let error = serve(&["--memory-limit", "2GB"]).unwrap_err().to_string();
    assert!(error.contains("with K, M, G or T (powers of 1024)"), "{error}");
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    for (flags, expected) in [
        (&["--identity", "oidc:https://id.example.org/"][..], "needs --audience"),
        (&["--venue-markets", "5"], "takes no --venue-markets"),
        (
            &["--identity", "hs256:/secret", "--issuer", "i", "--issuer-data", "d"],
            "--identity hs256:/secret takes no --issuer-data",
        ),
        (&["--tier", "pro=1/2/3/4,free=1/2/3/4,pro=5/6/7/8"], "limits of pro twice"),
        (&["--cluster", "f", "--node", "a", "--clob", "on"], "needs --issuer-data DIR"),
        (&["--clob-trouble", "lost=1%"], "no effect without --clob on"),
    ] {
        let error = serve(flags).unwrap().check().unwrap_err().to_string();
        assert!(error.contains(expected), "{flags:?}: {error}");
    }
    let hs256 = ["--identity", "hs256:/secret", "--issuer", "i"];
    for flags in [
        &["--issuer-data", "d"][..],
        &[&hs256[..], &["--issuer-data", "d", "--clob", "on"]].concat(),
        &["--cluster", "f", "--node", "a", "--clob", "on", "--issuer-data", "d"],
    ] {
        assert_eq!(serve(flags).unwrap().check(), Ok(()), "{flags:?}");
    }
}

#[test]
fn tokens_need_a_key_on_disk() {
    assert_eq!(issuer_folder("./data"), Ok("./data".into()));
    assert!(issuer_folder("memory").is_err());
}

#[test]
fn a_balance_is_dollars() {
    assert_eq!(starting_balance("1000"), Ok(Usd::from_micros(1_000_000_000)));
    assert_eq!(starting_balance("0.5"), Ok(Usd::from_micros(500_000)));
    for text in ["-1", "1e10", "0.0000001", "x"] {
        assert!(starting_balance(text).is_err(), "{text}");
    }
}
