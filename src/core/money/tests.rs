use proptest::prelude::*;

use super::*;

#[track_caller]
fn check(text: &str, rounding: Rounding, expected: Result<i64, DecimalError>) {
    assert_eq!(micros_from_text(text, rounding), expected, "{text:?} {rounding:?}");
}

#[test]
fn decimal_text_is_read_exactly() {
    use DecimalError::{Malformed, TooLong, TooPrecise};
    use Rounding::{Exact, HalfEven, TowardZero};
    for (text, rounding, expected) in [
        ("0", Exact, Ok(0)),
        ("1", Exact, Ok(1_000_000)),
        ("0.53", Exact, Ok(530_000)),
        (".48", Exact, Ok(480_000)),
        ("-2.5", Exact, Ok(-2_500_000)),
        ("1e3", Exact, Ok(1_000_000_000)),
        ("1.5E-2", Exact, Ok(15_000)),
        ("1e+2", Exact, Ok(100_000_000)),
        ("0e999999999", Exact, Ok(0)),
        ("1e999999999", Exact, Ok(i64::MAX)),
        ("-1e30", Exact, Ok(-i64::MAX)),
        ("1e-999999999", TowardZero, Ok(0)),
        ("0.000001", Exact, Ok(1)),
        ("0.0000001", Exact, Err(TooPrecise)),
        ("1e-7", Exact, Err(TooPrecise)),
        ("94.33962264150944", TowardZero, Ok(94_339_622)),
        ("94.33962264150944", HalfEven, Ok(94_339_623)),
        ("0.0000005", HalfEven, Ok(0)),
        ("0.0000015", HalfEven, Ok(2)),
        ("0.00000050000001", HalfEven, Ok(1)),
        ("0.00000009", HalfEven, Ok(0)),
        ("0.0000009", TowardZero, Ok(0)),
        ("9.99999999999999999999999999999999999999", TowardZero, Ok(9_999_999)),
        ("9.99999999999999999999999999999999999999", HalfEven, Ok(10_000_000)),
        ("0000000000000000000000000000000000000001", Exact, Ok(1_000_000)),
        ("00000000000000000000000000000000000000001", Exact, Err(TooLong)),
        ("", Exact, Err(Malformed)),
        ("-", Exact, Err(Malformed)),
        (".", Exact, Err(Malformed)),
        ("5.", Exact, Err(Malformed)),
        ("1.2.3", Exact, Err(Malformed)),
        ("+1", Exact, Err(Malformed)),
        (" 1", Exact, Err(Malformed)),
        ("1e", Exact, Err(Malformed)),
        ("1e5.0", Exact, Err(Malformed)),
        ("NaN", Exact, Err(Malformed)),
        ("Infinity", Exact, Err(Malformed)),
        ("0x10", Exact, Err(Malformed)),
        ("１", Exact, Err(Malformed)),
    ] {
        check(text, rounding, expected);
    }
}

#[test]
fn text_is_trimmed() {
    for (micros, expected) in [
        (0, "0"),
        (530_000, "0.53"),
        (10_000_000, "10"),
        (994_690_000, "994.69"),
        (1, "0.000001"),
        (-15_000_000, "-15"),
        (-1, "-0.000001"),
        (i64::MIN, "-9223372036854.775808"),
        (i64::MAX, "9223372036854.775807"),
    ] {
        assert_eq!(Usd::from_micros(micros).to_string(), expected);
    }
}

#[test]
fn a_notional_is_rounded_once_and_against_the_trader() {
    let exact = Notional::of(Price::from_micros(333_300), Shares::from_micros(10));
    assert_eq!(exact.picos(), 3_333_000);
    assert_eq!(exact.floor(), Usd::from_micros(3));
    assert_eq!(exact.ceil(), Usd::from_micros(4));
    let whole = Notional::of(Price::from_micros(500_000), Shares::from_micros(2_000_000));
    assert_eq!(whole.floor(), whole.ceil());
}

#[test]
fn halves_go_to_the_even_neighbour() {
    for (dividend, divisor, expected) in
        [(5, 10, 0), (15, 10, 2), (25, 10, 2), (26, 10, 3), (-5, 10, 0), (-15, 10, -2), (7, 1, 7)]
    {
        assert_eq!(div_half_even(dividend, divisor), expected, "{dividend}/{divisor}");
    }
}

#[test]
fn a_quotable_price_lies_between_the_ends_on_the_finest_tick() {
    for (micros, expected) in
        [(0, false), (100, true), (999_900, true), (1_000_000, false), (150, false), (-100, false)]
    {
        assert_eq!(Price::from_micros(micros).is_quotable(), expected, "{micros}");
    }
}

proptest! {
    #[test]
    fn text_and_millionths_are_the_same_number(micros in any::<i64>()) {
        let text = Usd::from_micros(micros).to_string();
        // The lowest i64 has no positive counterpart; its text clamps to the one above it.
        prop_assert_eq!(micros_from_text(&text, Rounding::Exact), Ok(micros.max(-i64::MAX)));
    }

    #[test]
    fn short_text_is_no_other_number_than_with_zeros_before_it(
        text in "-?[0-9]{0,9}(\\.[0-9]{0,8})?"
    ) {
        // Text longer than 12 characters takes the slow path.
        let padded = match text.strip_prefix('-') {
            Some(rest) => format!("-00000000000000{rest}"),
            None => format!("00000000000000{text}"),
        };
        for rounding in [Rounding::Exact, Rounding::TowardZero, Rounding::HalfEven] {
            let expected = match text.trim_start_matches('-') {
                // Leading zeros make valid what would be invalid without them.
                "" => Err(DecimalError::Malformed),
                _ => micros_from_text(&padded, rounding),
            };
            prop_assert_eq!(micros_from_text(&text, rounding), expected);
        }
    }

    #[test]
    fn any_text_gets_an_answer(text in ".{0,45}") {
        let _ = micros_from_text(&text, Rounding::HalfEven);
    }

    /// A naive parser based on one big integer agrees with the digit parser.
    #[test]
    fn rounding_agrees_with_whole_number_arithmetic(
        whole in 0_u64..1_000_000, fraction in 0_u64..1_000_000_000_000,
    ) {
        let text = format!("{whole}.{fraction:012}");
        let exact = i128::from(whole) * 1_000_000_000_000 + i128::from(fraction);
        let floor = i64::try_from(exact / 1_000_000).unwrap();
        let even = i64::try_from(div_half_even(exact, 1_000_000)).unwrap();
        prop_assert_eq!(micros_from_text(&text, Rounding::TowardZero), Ok(floor));
        prop_assert_eq!(micros_from_text(&text, Rounding::HalfEven), Ok(even));
    }

    /// The 64-bit and the 128-bit division give the same quotient.
    #[test]
    fn quotients_agree_with_plain_division(
        dividend in any::<i128>(), dividend_bits in 1_u32..126,
        divisor in 1..i128::MAX, divisor_bits in 1_u32..126, zeros in 0_u32..40,
    ) {
        let dividend = dividend >> (127 - dividend_bits);
        let divisor = (divisor >> (127 - divisor_bits) | 1) << zeros.min(126 - divisor_bits);
        let (floor, rest) = (dividend.div_euclid(divisor), dividend.rem_euclid(divisor));
        prop_assert_eq!(div_floor(dividend, divisor), (floor, rest));
        prop_assert_eq!(div_ceil(dividend, divisor), floor + i128::from(rest > 0));
        let half_even = div_half_even(dividend, divisor);
        let twice_off = (dividend - half_even * divisor) * 2;
        prop_assert!(twice_off.abs() <= divisor);
        prop_assert!(twice_off.abs() < divisor || half_even % 2 == 0);
    }

    #[test]
    fn parts_of_a_cost_never_exceed_it(
        cost in 0_i64..1 << 50, part in 1_i64..1 << 40, more in 0_i64..1 << 40,
    ) {
        let whole = Shares::from_micros(part + more);
        let taken = Usd::from_micros(cost).share_floor(Shares::from_micros(part), whole);
        prop_assert!(taken.micros() <= cost);
        prop_assert_eq!(Usd::from_micros(cost).share_floor(whole, whole).micros(), cost);
    }
}
