//! What an order takes of a book, and what that costs.

use super::*;

pub(super) fn limit(sent: &Sent) -> Micros {
    sent.price.expect("a limit order has a price")
}

pub(super) fn reaches(sent: &Sent, price: Micros) -> bool {
    if sent.is_buy { price <= limit(sent) } else { price >= limit(sent) }
}

/// Micro-dollars, exactly.
pub(super) fn dollars(price: Micros, quantity: Micros) -> Ratio {
    Ratio::micros(price) * Ratio::whole(quantity)
}

pub(super) fn value(levels: &[(Micros, Micros)]) -> Ratio {
    levels
        .iter()
        .fold(Ratio::ZERO, |sum, &(price, size)| sum + Ratio::micros(price) * Ratio::micros(size))
}

pub(super) fn cost(
    sent: &Sent,
    taken: &[(Micros, Micros)],
    fees: (Micros, i64),
) -> (Micros, Micros) {
    let dollars = value(taken) * Ratio::whole(1_000_000);
    let notional = if sent.is_buy { dollars.ceil() } else { dollars.floor() };
    let fee = taken.iter().map(|&level| level_fee(fees.0, fees.1, level)).sum();
    (notional, fee)
}

pub(super) fn taken(levels: &[(Micros, Micros)], quantity: Micros) -> Vec<(Micros, Micros)> {
    let mut rest = quantity;
    let mut taken = Vec::new();
    for &(price, size) in levels {
        if rest > 0 {
            taken.push((price, size.min(rest)));
            rest -= size.min(rest);
        }
    }
    taken
}

/// The most shares in steps of 0.0001 that cost no more than the amount, and whether it is spent.
pub(super) fn affordable(amount: Micros, levels: &[(Micros, Micros)]) -> (Micros, bool) {
    let (mut left, mut shares, mut is_spent) = (Ratio::micros(amount), Ratio::ZERO, false);
    for &(price, size) in levels {
        let affordable = left / Ratio::micros(price);
        let size = Ratio::micros(size);
        if affordable < size {
            shares = shares + affordable;
            left = Ratio::ZERO;
            is_spent = true;
            break;
        }
        shares = shares + size;
        left = left - size * Ratio::micros(price);
    }
    is_spent |= left == Ratio::ZERO;
    ((shares * Ratio::whole(10_000)).floor() * 100, is_spent)
}
