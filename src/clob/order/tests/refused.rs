//! What is no order, or not one of the caller.

use super::*;

/// Puts `value` in place of a field, given as `name` or `order.name`.
fn put(body: &mut Value, path: &str, value: Value) {
    match path.strip_prefix("order.") {
        Some(name) => body["order"][name] = value,
        None => body[path] = value,
    }
}

fn remove(body: &mut Value, path: &str) {
    let (parent, name) = match path.strip_prefix("order.") {
        Some(name) => (&mut body["order"], name),
        None => (body, path),
    };
    parent.as_object_mut().unwrap().remove(name).unwrap();
}

#[track_caller]
fn check(draft: &Draft, body: &Value, expected: OrderError) {
    assert_eq!(draft.verify(body), Err(expected), "{body}");
}

#[test]
fn each_field_is_needed_and_has_its_type() {
    let v1 = Draft { version: Version::V1, ..DRAFT };
    let texts = ["maker", "signer", "tokenId", "makerAmount", "takerAmount", "side", "signature"];
    let of_v1 = ["expiration", "nonce", "feeRateBps", "taker"];
    let of_v2 = ["metadata", "builder"];
    for (draft, own) in [(v1, &of_v1[..]), (DRAFT, &of_v2)] {
        let names = texts.iter().chain(own).map(|name| format!("order.{name}"));
        let names = names.chain(["owner", "orderType"].map(String::from));
        for name in names {
            for wrong in [json!(0), json!(1.5), json!(true), json!([]), json!({}), json!(["0"])] {
                let mut body = draft.body();
                put(&mut body, &name, wrong);
                check(&draft, &body, OrderError::Payload);
            }
            let mut body = draft.body();
            put(&mut body, &name, Value::Null);
            check(&draft, &body, OrderError::Payload);
            remove(&mut body, &name);
            check(&draft, &body, OrderError::Payload);
        }
        for name in ["order.salt", "order.signatureType"] {
            let wrong = [json!("0"), json!(1.5), json!(-1), json!(1e3), json!(null), json!([0])];
            for wrong in wrong {
                let mut body = draft.body();
                put(&mut body, name, wrong);
                check(&draft, &body, OrderError::Payload);
            }
        }
    }
    for wrong in [json!(1), json!("true"), json!([])] {
        for name in ["postOnly", "deferExec"] {
            let mut body = DRAFT.body();
            put(&mut body, name, wrong.clone());
            check(&DRAFT, &body, OrderError::Payload);
        }
        for name in ["order.timestamp", "order.expiration"] {
            let mut body = DRAFT.body();
            put(&mut body, name, wrong.clone());
            check(&DRAFT, &body, OrderError::Payload);
        }
    }
}

#[test]
fn each_field_is_in_its_range() {
    let v1 = Draft { version: Version::V1, ..DRAFT };
    let too_large = "18446744073709551616";
    let rows = [
        (v1, "order.salt", json!(1_u64 << 53)),
        (v1, "order.salt", json!(u64::MAX)),
        (v1, "order.signatureType", json!(4)),
        (v1, "order.signatureType", json!(256)),
        (v1, "order.makerAmount", json!("0")),
        (v1, "order.takerAmount", json!("0")),
        (v1, "order.makerAmount", json!(too_large)),
        (v1, "order.takerAmount", json!("1.5")),
        (v1, "order.takerAmount", json!("-1")),
        (v1, "order.takerAmount", json!("+1")),
        (v1, "order.takerAmount", json!("")),
        (v1, "order.expiration", json!(too_large)),
        (v1, "order.nonce", json!(too_large)),
        (v1, "order.feeRateBps", json!("0x1")),
        (v1, "order.taker", json!("")),
        (v1, "order.maker", json!("6370ef2f4db3611d657b90667de398a2cc2a370c")),
        (v1, "order.signer", json!("0x")),
        (v1, "order.side", json!("buy")),
        (v1, "order.side", json!("0")),
        (v1, "orderType", json!("gtc")),
        (v1, "orderType", json!("IOC")),
        (DRAFT, "order.timestamp", json!(too_large)),
        (DRAFT, "order.timestamp", json!("")),
        (DRAFT, "order.metadata", json!("0x")),
        (DRAFT, "order.builder", json!(format!("{}00", hex([0; 32])))),
        // Without a timestamp it is a V1 order, which has other fields.
        (DRAFT, "order.timestamp", json!(null)),
    ];
    for (draft, name, value) in rows {
        let mut body = draft.body();
        put(&mut body, name, value);
        check(&draft, &body, OrderError::Payload);
    }
    let largest = DRAFT.body_with(|order| order["salt"] = ((1_u64 << 53) - 1).into());
    assert!(DRAFT.verify(&largest).is_ok());
}

#[test]
fn a_body_is_one_object_that_has_each_name_once() {
    let body = DRAFT.body().to_string();
    let parse = |text: &str| PostedOrder::parse(text.as_bytes()).map(drop);
    assert_eq!(parse(&body), Ok(()));
    assert_eq!(parse(&format!(" \n{body}\t")), Ok(()));
    let order = DRAFT.body()["order"].to_string();
    let wrong = [
        String::new(),
        "null".into(),
        "[]".into(),
        "{}".into(),
        "5".into(),
        "\"order\"".into(),
        format!("[{body}]"),
        format!("[{order},\"{API_KEY}\",\"GTC\"]"),
        format!("{body}{body}"),
        format!("{body},"),
        body[..body.len() - 1].into(),
        body.replace("\"salt\":", "salt:"),
        body.replacen('{', "{\"owner\":\"x\",", 1),
        body.replacen('{', "{\"more\":1,\"more\":1,", 1),
        body.replace("\"salt\":", "\"salt\":1,\"salt\":"),
        // The same name, spelled in another way.
        body.replace("\"salt\":", "\"s\\u0061lt\":1,\"salt\":"),
        body.replace(&order, &format!("[{order}]")),
        body.replace(&order, &format!("{order:?}")),
    ];
    for wrong in wrong {
        assert_eq!(parse(&wrong), Err(OrderError::Payload), "{wrong}");
    }
    let many: Vec<String> = (0..40).map(|it| format!("\"x{it}\":0")).collect();
    let many = format!("{{{},", many.join(","));
    assert_eq!(parse(&body.replacen('{', &many, 1)), Err(OrderError::Payload));
    let deep = format!("{{\"x\":{}{},", "[".repeat(100_000), "]".repeat(100_000));
    assert!(parse(&body.replacen('{', &deep, 1)).is_ok());
    let not_utf_8 = body.as_bytes().iter().map(|&it| if it == b'G' { 0xff } else { it });
    let not_utf_8: Vec<u8> = not_utf_8.collect();
    assert_eq!(PostedOrder::parse(&not_utf_8), Err(OrderError::Payload));
}

#[test]
fn an_order_belongs_to_its_caller() {
    use SignatureType::{Deposit, Eoa, Proxy, Safe};
    let body = DRAFT.body();
    let posted = PostedOrder::parse(body.to_string().as_bytes()).unwrap();
    let other_key = Caller { api_key: "D05BCBB9-EFBD-47B6-A124-639933A50049", ..DRAFT.caller() };
    assert_eq!(posted.verify(&other_key, &STANDARD), Err(OrderError::Owner));
    assert_eq!(posted.verify(&caller(&key(2)), &STANDARD), Err(OrderError::Signer));

    // Types 1 and 2: the signer is the caller, the maker the wallet of the type.
    let wallets = Wallets::of(address_of(&key(1)));
    let strangers = Wallets::of(address_of(&key(2)));
    let rows = [
        (Eoa, "maker", wallets.proxy, OrderError::Signature),
        (Eoa, "maker", address_of(&key(2)), OrderError::Signature),
        (Eoa, "signer", wallets.safe, OrderError::Signer),
        (Proxy, "maker", wallets.safe, OrderError::Signature),
        (Proxy, "maker", strangers.proxy, OrderError::Signature),
        (Proxy, "signer", wallets.proxy, OrderError::Signer),
        (Safe, "maker", wallets.proxy, OrderError::Signature),
        (Safe, "maker", address_of(&key(1)), OrderError::Signature),
        (Safe, "maker", strangers.safe, OrderError::Signature),
        (Deposit, "maker", wallets.deposit_without_beacon, OrderError::Signature),
        (Deposit, "maker", address_of(&key(1)), OrderError::Signature),
        (Deposit, "signer", address_of(&key(1)), OrderError::Signer),
        (Deposit, "signer", strangers.deposit, OrderError::Signer),
    ];
    for (signature_type, name, wallet, expected) in rows {
        let draft = Draft { signature_type, ..DRAFT };
        // The signature itself is good.
        let body = draft.body_with(|order| order[name] = wallet.to_string().into());
        check(&draft, &body, expected);
    }
}

#[test]
fn a_wallet_has_no_contract_of_some_versions_and_chains() {
    let position = Draft { version: Version::V1, ..DRAFT };
    let posted = PostedOrder::parse(position.body().to_string().as_bytes()).unwrap();
    let market = MarketFacts { kind: MarketKind::Position, ..STANDARD };
    assert_eq!(posted.verify(&position.caller(), &market), Err(OrderError::Version));
    let proxy = Draft { signature_type: SignatureType::Proxy, chain: Chain::Amoy, ..DRAFT };
    check(&proxy, &proxy.body(), OrderError::Signature);
    // Whatever is signed, V1 has no deposit wallets.
    let deposit = Draft { signature_type: SignatureType::Deposit, version: Version::V1, ..DRAFT };
    check(&deposit, &deposit.body(), OrderError::Signature);
    let mut plain = deposit.body();
    plain["order"]["signature"] = hex(sign(&key(1), deposit.digest(&plain["order"]))).into();
    check(&deposit, &plain, OrderError::Signature);
}

#[test]
fn a_wrapped_signature_has_one_form() {
    let draft = Draft { signature_type: SignatureType::Deposit, ..DRAFT };
    let good = draft.signature(&draft.unsigned());
    assert_eq!(good.len(), 317);
    let order = draft.unsigned();
    let plain = sign(&key(1), draft.digest(&order));
    let by_stranger = Draft { key: 2, ..draft };
    let other_chain = Draft { chain: Chain::Amoy, ..draft };
    let other_market = Draft { kind: MarketKind::NegRisk, ..draft };
    // As a session key's: the wrapped signature, wrapped once more, with a mark at its end.
    let session = [&good[..], &[0x64, 0x92].repeat(16)].concat();
    let wrong = [
        vec![],
        plain.clone(),
        good[..65].to_vec(),
        [&plain, &good[65..]].concat(),
        [&by_stranger.signature(&order)[..65], &good[65..]].concat(),
        [&good[..65], &other_chain.separator(), &good[97..]].concat(),
        other_market.signature(&order),
        [&good[..97], &[0; 32], &good[129..]].concat(),
        [&good[..129], &b"order"[..], &good[134..]].concat(),
        [&good[..315], &[0, 0xbb]].concat(),
        [&good[..315], &[1, 0xba]].concat(),
        good[..316].to_vec(),
        [&good[..], &[0]].concat(),
        session,
    ];
    for wrong in wrong {
        let mut body = draft.body();
        body["order"]["signature"] = hex(&wrong).into();
        check(&draft, &body, OrderError::Signature);
    }
    // Signed for the other chain as a whole, it is an order of that chain.
    let mut body = draft.body();
    body["order"]["signature"] = hex(other_chain.signature(&order)).into();
    assert_eq!(draft.verify(&body).unwrap().chain, Chain::Amoy);
}
