//! What wallets sign is accepted, for each contract and each kind of wallet.

use super::*;

#[test]
fn each_wallet_may_sign_for_each_contract() {
    for draft in all_drafts() {
        let body = draft.body();
        let order = draft.verify(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
        let [maker, _] = draft.wallets();
        let expected = SignedOrder {
            id: OrderId(draft.digest(&body["order"])),
            version: draft.version,
            chain: draft.chain,
            signature_type: draft.signature_type,
            signer: address_of(&key(draft.key)),
            maker,
            side: Side::Buy,
            maker_amount_micros: 9_000_000,
            taker_amount_micros: 20_000_000,
            order_type: OrderType::Gtc,
            expiration_s: 0,
            post_only: false,
            defer_exec: false,
        };
        assert_eq!(order, expected);
        assert_eq!(order.id.to_string(), hex(order.id.bytes()));
        assert_eq!(format!("{:?}", OrderId::from_bytes(*order.id.bytes())), hex(order.id.bytes()));
        let named = naive::signed_by(&body, order.signer, draft.kind);
        assert_eq!(named.map(OrderId), Some(order.id));
    }
}

/// An order for one contract counts for no other, nor for another kind of wallet or version.
#[test]
fn a_signature_counts_for_one_contract() {
    let drafts = all_drafts();
    for draft in &drafts {
        let signature = draft.body()["order"]["signature"].clone();
        for other in &drafts {
            let mut body = other.body();
            body["order"]["signature"] = signature.clone();
            // An order says neither its chain nor its contract, so all of its market are tried.
            let is_same_market = (draft.version, draft.kind) == (other.version, other.kind);
            let expected = if is_same_market && draft.signature_type == other.signature_type {
                Ok((draft.chain, OrderId(draft.digest(&body["order"]))))
            } else {
                Err(OrderError::Signature)
            };
            let result = other.verify(&body).map(|order| (order.chain, order.id));
            assert_eq!(result, expected, "{body}");
        }
    }
}

#[test]
fn either_deposit_wallet_of_an_account_may_sign() {
    let draft = Draft { signature_type: SignatureType::Deposit, ..DRAFT };
    let wallets = Wallets::of(address_of(&key(1)));
    for wallet in [wallets.deposit, wallets.deposit_without_beacon] {
        let body = draft.body_with(|order| {
            order["maker"] = wallet.to_string().into();
            order["signer"] = wallet.to_string().into();
        });
        assert_eq!(draft.verify(&body).unwrap().maker, wallet);
    }
}

/// The wallet is part of what is signed: the other wallet of the account cannot use it.
#[test]
fn a_signature_counts_for_one_deposit_wallet() {
    let draft = Draft { signature_type: SignatureType::Deposit, ..DRAFT };
    let other = Wallets::of(address_of(&key(1))).deposit_without_beacon.to_string();
    let mut body = draft.body();
    for name in ["maker", "signer"] {
        body["order"][name] = other.clone().into();
    }
    assert_eq!(draft.verify(&body), Err(OrderError::Signature));
}

#[test]
fn each_side_and_each_type_mean_what_they_say() {
    use OrderSize::{Budget, Shares};
    use OrderType::{Fak, Fok, Gtc, Gtd};
    let rows = [
        (Side::Buy, Gtc, [9_000_000, 20_000_000], 450_000, Shares(20_000_000)),
        (Side::Buy, Gtd, [9_000_000, 20_000_000], 450_000, Shares(20_000_000)),
        (Side::Buy, Fok, [10_000_000, 22_222_200], 450_000, Budget(10_000_000)),
        (Side::Buy, Fak, [10_000_000, 22_222_200], 450_000, Budget(10_000_000)),
        (Side::Sell, Gtc, [20_000_000, 9_000_000], 450_000, Shares(20_000_000)),
        (Side::Sell, Gtd, [20_000_000, 9_000_000], 450_000, Shares(20_000_000)),
        (Side::Sell, Fok, [20_000_000, 9_000_000], 450_000, Shares(20_000_000)),
        (Side::Sell, Fak, [20_000_000, 9_000_100], 450_000, Shares(20_000_000)),
    ];
    for version in [Version::V1, Version::V2] {
        for (side, order_type, amounts, price_micros, size) in rows {
            let draft = Draft { version, side, order_type, amounts, ..DRAFT };
            let order = draft.verify(&draft.body()).unwrap();
            assert_eq!((order.side, order.order_type), (side, order_type));
            assert_eq!([order.maker_amount_micros, order.taker_amount_micros], amounts);
            assert_eq!(order.terms(&STANDARD), Ok(OrderTerms { price_micros, size }));
            let ends_at_s = (order_type == Gtd).then_some(1_799_999_940);
            assert_eq!(order.ends_at_s(), ends_at_s);
        }
    }
}

#[test]
fn a_gtd_order_expires_at_least_three_minutes_ahead() {
    let draft = Draft { order_type: OrderType::Gtd, ..DRAFT };
    let order = draft.verify(&draft.body()).unwrap();
    assert_eq!(order.expiration_s, 1_800_000_000);
    assert_eq!(order.check_expiration(1_799_999_820), Ok(()));
    assert_eq!(order.check_expiration(1_799_999_821), Err(OrderError::Expiration));
    assert_eq!(order.check_expiration(u64::MAX), Err(OrderError::Expiration));
    let order = DRAFT.verify(&DRAFT.body()).unwrap();
    assert_eq!(order.check_expiration(u64::MAX), Ok(()));
}

/// What a wallet does not sign does not change the order's id.
#[test]
fn fields_outside_the_signature_may_change() {
    let body = DRAFT.body();
    let order = DRAFT.verify(&body).unwrap();
    let mut changed = body.clone();
    changed["orderType"] = "GTD".into();
    changed["postOnly"] = true.into();
    changed["deferExec"] = true.into();
    changed["order"]["expiration"] = "1800000000".into();
    changed["order"]["taker"] = json!({ "ignored": [1, null] });
    changed["comment"] = "ignored".into();
    let expected = SignedOrder {
        order_type: OrderType::Gtd,
        post_only: true,
        defer_exec: true,
        expiration_s: 1_800_000_000,
        ..order
    };
    assert_eq!(DRAFT.verify(&changed), Ok(expected));
    let mut without = body.clone();
    without["order"].as_object_mut().unwrap().remove("expiration");
    without["postOnly"] = Value::Null;
    assert_eq!(DRAFT.verify(&without), Ok(order));
    // Another text of the same number or address is the same order.
    let mut padded = body;
    padded["order"]["makerAmount"] = "0009000000".into();
    let maker = padded["order"]["maker"].as_str().unwrap().to_ascii_lowercase();
    padded["order"]["maker"] = maker.into();
    assert_eq!(DRAFT.verify(&padded), Ok(order));
}

#[test]
fn a_token_may_have_256_bits() {
    let largest = "115792089237316195423570985008687907853269984665640564039457584007913129639935";
    for token in ["0", "1", TOKEN, largest] {
        let body = DRAFT.body_with(|order| order["tokenId"] = token.into());
        let order = DRAFT.verify(&body).unwrap();
        assert_eq!(order.id, OrderId(DRAFT.digest(&body["order"])), "{token}");
        let posted = PostedOrder::parse(body.to_string().as_bytes()).unwrap();
        assert_eq!(posted.token_id(), token);
    }
    let too_large =
        "115792089237316195423570985008687907853269984665640564039457584007913129639936";
    for token in [too_large, "", "-1", "+1", "0x1", "1.0", "1 ", &"9".repeat(100)] {
        let mut body = DRAFT.body();
        body["order"]["tokenId"] = token.into();
        assert_eq!(DRAFT.verify(&body), Err(OrderError::Payload), "{token}");
    }
}
