use super::super::trade::tests::{receipt, with};
use super::*;
use crate::http::invalid::tests::errors_of;
use paperbourse_core::engine::order::payload::NamedTimeInForce;
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::market::book::Side;
use paperbourse_core::money::{Price, Shares};

#[test]
fn a_batch_names_its_unnamed_entries() {
    let body = format!(
        "{{\"orders\":[{},{},{}]}}",
        with("", ""),
        with("client_order_id", "\"own\""),
        with("quantity", "\"3\"")
    );
    let named = read_batch(body.as_bytes(), Some(b"batch")).unwrap();
    let hashes: Vec<_> = named.iter().map(|request| request.names.hashes().to_vec()).collect();
    let by_batch = |index: usize| {
        let fingerprint = named[index].order.fingerprint();
        let place = u32::try_from(index).unwrap();
        vec![
            NameHash::of_batch_entry("batch", place),
            NameHash::of_batch_order("batch", fingerprint, 0),
        ]
    };
    assert_eq!(hashes, [by_batch(0), vec![NameHash::of_order("own")], by_batch(2),]);
    let unnamed = read_batch(body.as_bytes(), None).unwrap();
    assert!(unnamed[0].names.hashes().is_empty());
    assert_eq!(unnamed[2].order.quantity, Some(Shares::from_micros(3_000_000)));
}

/// So a batch in another order finds the orders that it has placed, wherever their entries stood.
#[test]
fn an_entry_has_a_name_that_does_not_depend_on_its_place() {
    let (one, two) = (with("", ""), with("quantity", "\"3\""));
    let names = |key: &[u8], entries: &[&str]| {
        let body = format!("{{\"orders\":[{}]}}", entries.join(","));
        let requests = read_batch(body.as_bytes(), Some(key)).unwrap();
        requests.iter().map(|it| it.names.hashes().to_vec()).collect::<Vec<_>>()
    };
    let common = |a: &[NameHash], b: &[NameHash]| a.iter().filter(|it| b.contains(it)).count();
    let batch = names(b"batch", &[&one, &two, &one]);
    let shuffled = names(b"batch", &[&two, &one, &one]);
    assert_eq!(common(&batch[0], &shuffled[1]), 1);
    assert_eq!(common(&batch[1], &shuffled[0]), 1);
    assert_eq!(batch[2], shuffled[2], "the second of two equal entries");
    assert_eq!((common(&batch[0], &batch[2]), common(&batch[0], &batch[1])), (0, 0));
    let others = names(b"other", &[&one, &two, &one]);
    assert_eq!((0..3).map(|index| common(&batch[index], &others[index])).sum::<usize>(), 0);
}

#[test]
fn errors_name_their_place_in_the_batch() {
    let good = &*with("", "");
    let orders = |orders: &[&str]| format!("{{\"orders\":[{}]}}", orders.join(","));
    let limit = r#"{"order_type":"limit","price":"2","market_id":"m"}"#;
    let doubled = r#"{"side":"BUY","side":"BUY"}"#;
    for (body, expected) in [
        ("{}".to_owned(), &["body.orders: missing"][..]),
        ("{\"orders\":{}}".to_owned(), &["body.orders: list_type"]),
        (orders(&[]), &["body.orders: too_short"]),
        (orders(&[good; BATCH_ENTRIES_MAX + 1]), &["body.orders: too_long"]),
        (orders(&[good, "7"]), &["body.orders.1: model_attributes_type"]),
        (orders(&[good, doubled]), &["body: json_invalid"]),
        (
            orders(&[good, &with("quantity", "0"), good, &with("side", "")]),
            &["body.orders.1.quantity: greater_than", "body.orders.3.side: missing"],
        ),
        (
            orders(&[limit, &with("outcome", "1")]),
            &[
                "body.orders.0.outcome: missing",
                "body.orders.0.side: missing",
                "body.orders.0.price: less_than_equal",
                "body.orders.1.outcome: string_type",
            ],
        ),
    ] {
        assert_eq!(errors_of(&read_batch(body.as_bytes(), None)), expected, "{body}");
    }
    let nulls = r#"{"order_type":null,"price":null,"amount":null,"#.to_owned() + &good[1..];
    assert_eq!(read_batch(orders(&[&nulls]).as_bytes(), None).unwrap().len(), 1);
    let most = orders(&[good; BATCH_ENTRIES_MAX]);
    assert_eq!(read_batch(most.as_bytes(), None).unwrap().len(), BATCH_ENTRIES_MAX);
}

#[test]
fn an_entry_is_of_any_kind_if_it_has_a_field_that_a_trade_has_not() {
    let read = |field: &str| {
        let entry = with("", "").replacen('{', &format!("{{{field},"), 1);
        let body = format!("{{\"orders\":[{entry}]}}");
        read_batch(body.as_bytes(), None).unwrap().remove(0).order
    };
    let dated = read(r#""expiration":7"#);
    assert_eq!((dated.kind, dated.expiration.is_some()), (OrderKind::Market, true));
    let limit = read(r#""order_type":"limit","expiration":7"#);
    assert_eq!((limit.kind, limit.expiration.is_some()), (OrderKind::Limit, true));
    assert_eq!(read(r#""price":"0.5""#).price, Some(Price::from_micros(500_000)));
    assert!(read(r#""amount":5"#).amount.is_some());
    assert!(read(r#""post_only":true"#).post_only);
    let killed = read(r#""time_in_force":"IOC""#);
    assert_eq!(killed.time_in_force, Some(NamedTimeInForce::Fak));
    let lower = with("side", "\"buy\"");
    for field in ["", r#""order_type":"market","#] {
        let body = format!("{{\"orders\":[{}]}}", lower.replacen('{', &format!("{{{field}"), 1));
        assert_eq!(read_batch(body.as_bytes(), None).unwrap()[0].order.side, Side::Buy, "{body}");
    }
}

#[test]
fn a_batch_shows_each_entry() {
    let order = market_order(TradeOrder {
        market_id: "0xabc".into(),
        outcome: "Maybe".into(),
        side: Side::Sell,
        quantity: Shares::from_micros(2_500_000),
        expected_price: None,
        max_slippage_bps: None,
    });
    let request = |name: Option<&str>| PlaceRequest {
        order: order.clone(),
        names: OrderNames::new([], name.map(Into::into)),
    };
    let requests = [request(None), request(Some("mine")), request(None)];
    let unnamed = OrderReceipt { client_order_id: None, slippage_bps: None, ..receipt() };
    let error = || Err(ApiError::from(Rejection::VenueUnavailable { book_at: None }));
    let outcomes = [Ok((unnamed, false)), error(), error()];
    let ignored = || vec!["`note` was ignored.".to_owned()];
    let entries = vec![ignored(), Vec::new(), ignored()];
    let warnings = BatchWarnings { batch: ignored(), entries };
    let answer = serde_json::to_string(&BatchAnswer::of(&requests, &outcomes, warnings)).unwrap();
    insta::assert_snapshot!(answer);
}
