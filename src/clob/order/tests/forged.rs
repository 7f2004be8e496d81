//! Whatever is changed in a signed order, it is refused or still the order that was signed.

use proptest::prelude::*;

use super::*;

/// Orders of each kind of wallet, version and side.
fn drafts() -> Vec<Draft> {
    let sides = [(Side::Buy, [9_000_000, 20_000_000]), (Side::Sell, [20_000_000, 9_000_000])];
    let drafts = all_drafts().into_iter().zip(sides.into_iter().cycle());
    drafts.map(|(draft, (side, amounts))| Draft { side, amounts, ..draft }).collect()
}

/// Whether a body with this text is accepted, as the order with this id.
fn is_accepted(draft: &Draft, id: OrderId, text: &[u8]) -> bool {
    let Ok(posted) = PostedOrder::parse(text) else { return false };
    let Ok(order) = posted.verify(&draft.caller(), &draft.market()) else { return false };
    assert_eq!(order.id, id, "{}", text.escape_ascii());
    true
}

#[test]
fn a_body_with_another_bit_is_refused_or_the_same_order() {
    let (mut flipped, mut accepted) = (0, 0);
    // Every 29th bit, which is each bit of a byte and each byte over the different orders.
    for (start, draft) in drafts().iter().enumerate() {
        let body = draft.body();
        let id = OrderId(draft.digest(&body["order"]));
        let text = body.to_string().into_bytes();
        assert!(is_accepted(draft, id, &text));
        for bit in (start..text.len() * 8).step_by(29) {
            let mut text = text.clone();
            text[bit / 8] ^= 1 << (bit % 8);
            accepted += u32::from(is_accepted(draft, id, &text));
            flipped += 1;
        }
    }
    eprintln!("{flipped} bits, of which {accepted} left the order as it was");
    assert!(flipped > 2_000 && accepted < flipped / 4);
}

#[test]
fn a_signature_with_another_bit_is_refused() {
    for draft in drafts().iter().filter(|draft| draft.version != Version::V1) {
        let mut body = draft.body();
        let signature = draft.signature(&body["order"]);
        let is_wrapped = draft.signature_type == SignatureType::Deposit;
        for bit in (0..signature.len() * 8).step_by(if is_wrapped { 13 } else { 7 }) {
            let mut signature = signature.clone();
            signature[bit / 8] ^= 1 << (bit % 8);
            body["order"]["signature"] = hex(signature).into();
            assert_eq!(draft.verify(&body), Err(OrderError::Signature), "{bit} {body}");
        }
    }
}

/// The value of another order in place of a field's, or one near it.
#[derive(Clone, Copy, Debug)]
enum Change {
    Splice(usize),
    Number(u64),
    Signer(u8),
    Byte(usize, u8),
}

fn changes() -> impl Strategy<Value = (usize, Change)> {
    let change = prop_oneof![
        any::<usize>().prop_map(Change::Splice),
        prop_oneof![0..5_u64, any::<u64>()].prop_map(Change::Number),
        (1..4_u8).prop_map(Change::Signer),
        any::<(usize, u8)>().prop_map(|(at, byte)| Change::Byte(at, byte)),
    ];
    (any::<usize>(), change)
}

fn apply(order: &mut Value, field: usize, change: Change, others: &[Draft]) {
    let names: Vec<String> = order.as_object().unwrap().keys().cloned().collect();
    let name = &names[field % names.len()];
    let value = &mut order[name];
    match change {
        Change::Splice(index) => {
            let other = others[index % others.len()].body();
            if let Some(other) = other["order"].get(name) {
                *value = other.clone();
            }
        }
        Change::Number(number) if value.is_number() => *value = number.into(),
        Change::Number(number) => *value = number.to_string().into(),
        Change::Signer(number) => *value = address_of(&key(number)).to_string().into(),
        Change::Byte(at, byte) => {
            let Some(text) = value.as_str() else { return };
            let mut text = text.as_bytes().to_vec();
            let at = at % text.len().max(1);
            if let Some(place) = text.get_mut(at) {
                *place = byte % 128;
            }
            *value = String::from_utf8(text).unwrap().into();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Orders of different keys, spliced with each other, for any market.
    #[test]
    fn no_order_is_accepted_that_its_signer_did_not_sign(
        index: usize,
        caller_key in 1..4_u8,
        kind in prop::sample::select(&KINDS[..]),
        changes in prop::collection::vec(changes(), 0..4),
    ) {
        let drafts = drafts();
        let mut others = Vec::new();
        for key in 1..4 {
            others.extend(drafts.iter().map(|draft| Draft { key, ..*draft }));
        }
        let mut body = others[index % others.len()].body();
        for (field, change) in changes {
            apply(&mut body["order"], field, change, &others);
        }
        let caller = caller(&key(caller_key));
        let Ok(posted) = PostedOrder::parse(body.to_string().as_bytes()) else { return Ok(()) };
        let signed = naive::signed_by(&body, caller.address, kind);
        match posted.verify(&caller, &MarketFacts { kind, ..STANDARD }) {
            Ok(order) => prop_assert_eq!(Some(order.id), signed.map(OrderId)),
            // The signature may be good, and the rest of a wrapped one not.
            Err(_) => prop_assert!(signed.is_none() || body["order"]["signatureType"] == 3),
        }
    }

    #[test]
    fn any_text_is_parsed_without_a_panic(
        text in prop::collection::vec(any::<u8>(), 0..300),
        cut: usize,
    ) {
        prop_assert!(PostedOrder::parse(&text).is_err());
        let body = DRAFT.body().to_string().into_bytes();
        let (head, tail) = body.split_at(cut % body.len());
        let mixed = [head, &text[..text.len().min(8)], tail].concat();
        if let Ok(posted) = PostedOrder::parse(&mixed) {
            let _any = posted.verify(&DRAFT.caller(), &STANDARD);
        }
    }
}
