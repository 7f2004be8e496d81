//! Prices, sizes and decimals.

use proptest::prelude::*;

use super::*;

/// A verified order with these amounts.
fn order(side: Side, order_type: OrderType, amounts: [u64; 2]) -> SignedOrder {
    let [maker_amount_micros, taker_amount_micros] = amounts;
    SignedOrder {
        id: OrderId([0xab; 32]),
        version: Version::V2,
        chain: Chain::Polygon,
        signature_type: SignatureType::Eoa,
        signer: Address::from_bytes([1; 20]),
        maker: Address::from_bytes([1; 20]),
        side,
        maker_amount_micros,
        taker_amount_micros,
        order_type,
        expiration_s: u64::from(order_type == OrderType::Gtd),
        post_only: false,
        defer_exec: false,
    }
}

fn market(tick_micros: u64) -> MarketFacts {
    MarketFacts { kind: MarketKind::Standard, tick_micros }
}

/// The price of an order to buy, in micro-dollars, or the price in the error.
fn price(
    order_type: OrderType,
    dollars: u64,
    shares: u64,
    tick_micros: u64,
) -> Result<u64, String> {
    let bought = order(Side::Buy, order_type, [dollars, shares]);
    bought.terms(&market(tick_micros)).map(|terms| terms.price_micros).map_err(
        |error| match error {
            OrderError::Tick { price, .. } => price,
            other => panic!("{other}"),
        },
    )
}

#[test]
fn a_limit_price_is_exactly_on_the_tick() {
    let rows = [
        (9_000_000, 20_000_000, 10_000, Ok(450_000)),
        (9_000_001, 20_000_000, 10_000, Err("0.45000005")),
        (8_999_999, 20_000_000, 10_000, Err("0.44999995")),
        (10_000_000, 10_200_000, 1_000, Err("0.9803921568627451")),
        (1, 3, 10_000, Err("0.3333333333333333")),
        (2, 3, 10_000, Err("0.6666666666666667")),
        (9_050_000, 20_000_000, 10_000, Err("0.4525")),
        (9_050_000, 20_000_000, 2_500, Ok(452_500)),
        (9_050_000, 20_000_000, 5_000, Err("0.4525")),
        (1, 10_000, 100, Ok(100)),
        (1, 1_000_000, 100, Err("0.000001")),
        (9_999, 10_000, 100, Ok(999_900)),
        (990_000, 1_000_000, 10_000, Ok(990_000)),
        (1_000_000, 1_000_000, 10_000, Err("1")),
        (2_000_000, 1_000_000, 10_000, Err("2")),
        (u64::MAX, 1, 10_000, Err("18446744073709551615")),
        (1, u64::MAX, 10_000, Err("0")),
        (u64::MAX, u64::MAX, 10_000, Err("1")),
        (u64::MAX / 5, u64::MAX, 100_000, Ok(200_000)),
    ];
    for (dollars, shares, tick, expected) in rows {
        let expected = expected.map_err(String::from);
        assert_eq!(price(OrderType::Gtc, dollars, shares, tick), expected, "{dollars}/{shares}");
    }
}

#[test]
fn a_market_price_is_that_next_to_the_ratio() {
    let rows = [
        (10_000_000, 22_222_200, 10_000, Ok(450_000)),
        (4_500_000, 10_000_000, 100_000, Ok(400_000)),
        (4_500_001, 10_000_000, 100_000, Ok(500_000)),
        (4_499_999, 10_000_000, 100_000, Ok(400_000)),
        (49, 1_000, 100_000, Err("0.049")),
        (51, 1_000, 100_000, Ok(100_000)),
        (949, 1_000, 100_000, Ok(900_000)),
        (951, 1_000, 100_000, Err("0.951")),
        (u64::MAX, 1, 10_000, Err("18446744073709551615")),
        (1, u64::MAX, 10_000, Err("0")),
    ];
    for (dollars, shares, tick, expected) in rows {
        let expected = expected.map_err(String::from);
        for order_type in [OrderType::Fok, OrderType::Fak] {
            assert_eq!(price(order_type, dollars, shares, tick), expected, "{dollars}/{shares}");
        }
    }
    // In the middle, a seller gets the higher price.
    let sold = order(Side::Sell, OrderType::Fok, [10_000_000, 4_500_000]);
    assert_eq!(sold.terms(&market(100_000)).unwrap().price_micros, 500_000);
}

#[test]
fn errors_are_in_the_words_of_the_venue() {
    let off_tick = order(Side::Buy, OrderType::Gtc, [9_050_000, 20_000_000]);
    let id = format!("0x{}", "ab".repeat(32));
    let expected =
        format!("order {id} is invalid. Price (0.4525) breaks minimum tick size rule: 0.01");
    assert_eq!(off_tick.terms(&market(10_000)).unwrap_err().to_string(), expected);

    let post_only = |order_type| {
        let order = order(Side::Buy, order_type, [9_000_000, 20_000_000]);
        SignedOrder { post_only: true, ..order }.terms(&market(10_000)).map(drop)
    };
    assert_eq!([OrderType::Gtc, OrderType::Gtd].map(post_only), [Ok(()), Ok(())]);
    for order_type in [OrderType::Fok, OrderType::Fak] {
        let text = "invalid post-only order: only GTC and GTD order types are allowed";
        assert_eq!(post_only(order_type).unwrap_err().to_string(), text);
    }
    for order_type in [OrderType::Gtc, OrderType::Gtd, OrderType::Fok, OrderType::Fak] {
        let order = order(Side::Buy, order_type, [9_000_000, 20_000_000]);
        let expiration_s = 1 - order.expiration_s;
        let wrong = SignedOrder { expiration_s, ..order };
        let error = wrong.terms(&market(10_000)).unwrap_err().to_string();
        assert_eq!(error, "invalid expiration", "{order_type:?}");
    }
}

#[test]
fn the_venue_allows_few_decimals() {
    use OrderType::{Fak, Fok, Gtc};
    let market_buy = "invalid amounts, the market buy orders maker amount supports a max accuracy \
                      of 2 decimals, taker amount a max of 4 decimals";
    let buy = |decimals| {
        format!(
            "invalid amounts, the buy orders maker amount supports a max accuracy of {decimals} \
             decimals, taker amount a max of 2 decimals"
        )
    };
    let sell = |decimals| {
        format!(
            "invalid amounts, the sell orders maker amount supports a max accuracy of 2 decimals, \
             taker amount a max of {decimals} decimals"
        )
    };
    let rows = [
        (Side::Buy, Fok, [2_030_000, 3_500_000], 10_000, String::new()),
        (Side::Buy, Fok, [2_030_000, 3_500_100], 10_000, String::new()),
        (Side::Buy, Fak, [2_030_000, 3_500_010], 1_000, market_buy.into()),
        (Side::Buy, Fok, [2_031_000, 3_500_000], 10_000, market_buy.into()),
        (Side::Buy, Gtc, [2_030_000, 3_500_000], 10_000, String::new()),
        (Side::Buy, Gtc, [2_030_100, 3_500_000], 10_000, String::new()),
        (Side::Buy, Gtc, [2_030_000, 3_501_000], 10_000, buy(4)),
        (Side::Buy, Gtc, [2_030_010, 3_500_000], 10_000, buy(4)),
        (Side::Buy, Gtc, [2_030_010, 3_500_000], 1_000, String::new()),
        (Side::Buy, Gtc, [2_030_001, 3_500_000], 1_000, buy(5)),
        (Side::Buy, Gtc, [2_030_001, 3_500_000], 2_500, String::new()),
        (Side::Buy, Gtc, [2_030_001, 3_500_001], 100, buy(6)),
        (Side::Buy, Gtc, [2_030_001, 3_500_000], 5_000, buy(5)),
        (Side::Buy, Gtc, [2_030_100, 3_500_000], 100_000, buy(3)),
        (Side::Sell, Gtc, [3_500_000, 2_030_001], 10_000, String::new()),
        (Side::Sell, Gtc, [3_501_000, 2_030_000], 10_000, sell(4)),
        (Side::Sell, Fok, [3_510_000, 2_030_001], 10_000, String::new()),
        (Side::Sell, Fak, [3_500_001, 2_030_000], 1_000, sell(5)),
    ];
    for (side, order_type, amounts, tick_micros, expected) in rows {
        let result = order(side, order_type, amounts).check_decimals(&market(tick_micros));
        let text = result.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(text, expected, "{side:?} {order_type:?} {amounts:?} {tick_micros}");
    }
}

proptest! {
    #[test]
    fn any_amounts_have_a_price_near_their_ratio_or_none(
        amounts in prop::array::uniform2(prop_oneof![1..=u64::MAX, 1..=10_000_000_u64]),
        tick_micros in prop_oneof![
            Just(100_000_u64), Just(10_000), Just(5_000), Just(2_500), Just(1_000), Just(100),
            1..1_000_000_u64,
        ],
        is_buy: bool,
        is_market: bool,
    ) {
        let side = if is_buy { Side::Buy } else { Side::Sell };
        let order_type = if is_market { OrderType::Fak } else { OrderType::Gtc };
        let order = order(side, order_type, amounts);
        let [dollars, shares] = if is_buy { amounts } else { [amounts[1], amounts[0]] };
        let _any = order.check_decimals(&market(tick_micros));
        let Ok(terms) = order.terms(&market(tick_micros)) else { return Ok(()) };
        let price = u128::from(terms.price_micros);
        prop_assert!(terms.price_micros.is_multiple_of(tick_micros));
        prop_assert!((tick_micros..=1_000_000 - tick_micros).contains(&terms.price_micros));
        let off = (u128::from(dollars) * 1_000_000).abs_diff(price * u128::from(shares));
        let off_max = if is_market { u128::from(tick_micros) * u128::from(shares) } else { 0 };
        prop_assert!(2 * off <= off_max);
        let is_budget = is_buy && is_market;
        let size = if is_budget { OrderSize::Budget(dollars) } else { OrderSize::Shares(shares) };
        prop_assert_eq!(terms.size, size);
    }

    #[test]
    fn any_price_on_the_tick_is_found(
        ticks in 1..100_u64,
        size_cents in 1..1_000_000_000_u64,
        is_buy: bool,
    ) {
        let (price_micros, shares) = (ticks * 10_000, size_cents * 10_000);
        let dollars = price_micros * size_cents / 100;
        let amounts = if is_buy { [dollars, shares] } else { [shares, dollars] };
        let side = if is_buy { Side::Buy } else { Side::Sell };
        for order_type in [OrderType::Gtc, OrderType::Fok] {
            let terms = order(side, order_type, amounts).terms(&market(10_000)).unwrap();
            prop_assert_eq!(terms.price_micros, price_micros);
        }
        let limit = order(side, OrderType::Gtc, amounts);
        prop_assert_eq!(limit.check_decimals(&market(10_000)), Ok(()));
    }
}

#[test]
fn a_token_with_zeros_in_place_of_a_hash_is_a_position() {
    let zeros = "115792089237316195423570985008687907853269984645358154435805913585065389981695";
    for (token_id, is_neg_risk, expected) in [
        (TOKEN, false, Some(MarketKind::Standard)),
        (TOKEN, true, Some(MarketKind::NegRisk)),
        ("11", false, Some(MarketKind::Position)),
        ("11", true, Some(MarketKind::Position)),
        // 2^40 - 1, then 2^40, the first of the 64 bits; 2^103, the last one, then 2^104.
        ("1099511627775", false, Some(MarketKind::Position)),
        ("1099511627776", false, Some(MarketKind::Standard)),
        ("10141204801825835211973625643008", false, Some(MarketKind::Standard)),
        ("20282409603651670423947251286016", false, Some(MarketKind::Position)),
        // All other bits.
        (zeros, false, Some(MarketKind::Position)),
        ("", false, None),
        ("0x1", false, None),
        (&format!("{TOKEN}0"), false, None),
    ] {
        assert_eq!(MarketKind::of_token(token_id, is_neg_risk), expected, "{token_id}");
    }
}
