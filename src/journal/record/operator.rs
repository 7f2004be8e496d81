//! The fields of what operators do.

use super::field::{Fields, Read, Reader};
use crate::engine::event::OperatorActed;
use crate::engine::standing::{Act, Operator, Suspension};
use crate::ids::AccountId;

impl Fields<'_> {
    pub(super) fn operator_acted(&mut self, acted: &OperatorActed) {
        let OperatorActed { account, act, by, reason, at } = acted;
        self.u64(account.get());
        self.i64(at.nanos());
        self.operator(by);
        self.text(reason);
        self.u8(act_code(act));
    }

    fn operator(&mut self, by: &Operator) {
        self.u32(by.uid);
        self.optional_text(by.user.as_deref());
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
                _ => None,
            })
        })?;
        Ok(Box::new(OperatorActed { account, act, by, reason, at }))
    }

    fn operator(&mut self) -> Read<Operator> {
        let uid = self.u32("operator")?;
        Ok(Operator { uid, user: self.optional_text("name of the operator")? })
    }

    pub(crate) fn suspension(&mut self) -> Read<Suspension> {
        let at = self.timestamp("time of the suspension")?;
        let by = self.operator()?;
        Ok(Suspension { at, by, reason: self.text("reason of the suspension")?.into() })
    }
}

/// The number of an act on disk.
const fn act_code(act: &Act) -> u8 {
    match act {
        Act::Suspend => 1,
        Act::Resume => 2,
    }
}
