//! The fields of operator actions.

use super::field::{Fields, Read, Reader, tier_code, tier_of};
use paperbourse_core::engine::admin::standing::{Act, Deposit, Operator, Suspension};
use paperbourse_core::engine::event::OperatorActed;
use paperbourse_core::ids::AccountId;
use paperbourse_core::limits::tier::Tier;
use paperbourse_core::money::Usd;

impl Fields<'_> {
    pub(super) fn operator_acted(&mut self, acted: &OperatorActed) {
        let OperatorActed { account, act, by, reason, at } = acted;
        self.u64(account.get());
        self.i64(at.nanos());
        self.operator(by);
        self.text(reason);
        self.u8(act_code(act));
        match act {
            Act::Suspend | Act::Resume | Act::Reset | Act::Erase => {}
            Act::Tier(tier) => self.u8(tier_code(*tier)),
            Act::Deposit { amount, token } => {
                self.i64(amount.micros());
                self.0.extend_from_slice(token);
            }
        }
    }

    fn operator(&mut self, by: &Operator) {
        self.u32(by.uid);
        self.optional_text(by.user.as_deref());
    }

    /// Writes the tier's number plus one; 0 if there is no tier.
    pub(crate) fn optional_tier(&mut self, tier: Option<Tier>) {
        self.u8(tier.map_or(0, |tier| tier_code(tier) + 1));
    }

    pub(crate) fn deposit(&mut self, deposit: &Deposit) {
        let Deposit { token, amount, at } = deposit;
        self.0.extend_from_slice(token);
        self.i64(amount.micros());
        self.i64(at.nanos());
    }

    pub(crate) fn suspension(&mut self, suspension: &Suspension) {
        let Suspension { at, by, reason } = suspension;
        self.i64(at.nanos());
        self.operator(by);
        self.text(reason);
    }
}

impl Reader<'_> {
    pub(super) fn operator_acted(&mut self) -> Read<Box<OperatorActed>> {
        let account = self.id("account", AccountId::from_raw)?;
        let at = self.timestamp("time of the decision")?;
        let by = self.operator()?;
        let reason = self.text("reason")?.into();
        let act = self.valid("act of an operator", |reader| {
            Ok(match reader.u8("act of an operator")? {
                1 => Some(Act::Suspend),
                2 => Some(Act::Resume),
                4 => Some(Act::Reset),
                6 => Some(Act::Erase),
                5 => Some(Act::Tier(reader.tier()?)),
                3 => Some(Act::Deposit {
                    amount: Usd::from_micros(reader.i64("amount of the deposit")?),
                    token: reader.array("token of the deposit")?,
                }),
                _ => None,
            })
        })?;
        Ok(Box::new(OperatorActed { account, act, by, reason, at }))
    }

    fn operator(&mut self) -> Read<Operator> {
        let uid = self.u32("operator")?;
        Ok(Operator { uid, user: self.optional_text("name of the operator")? })
    }

    pub(crate) fn optional_tier(&mut self) -> Read<Option<Tier>> {
        self.valid("tier of the account", |reader| {
            Ok(match reader.u8("tier of the account")? {
                0 => Some(None),
                code => tier_of(code - 1).map(Some),
            })
        })
    }

    pub(crate) fn deposit(&mut self) -> Read<Deposit> {
        Ok(Deposit {
            token: self.array("token of the deposit")?,
            amount: Usd::from_micros(self.i64("amount of the deposit")?),
            at: self.timestamp("time of the deposit")?,
        })
    }

    pub(crate) fn suspension(&mut self) -> Read<Suspension> {
        let at = self.timestamp("time of the suspension")?;
        let by = self.operator()?;
        Ok(Suspension { at, by, reason: self.text("reason of the suspension")?.into() })
    }
}

/// Returns the number that stands for an act on disk.
const fn act_code(act: &Act) -> u8 {
    match act {
        Act::Suspend => 1,
        Act::Resume => 2,
        Act::Deposit { .. } => 3,
        Act::Reset => 4,
        Act::Tier(_) => 5,
        Act::Erase => 6,
    }
}
