//! What can be wrong with a registry, as data: what a check says, what the server reads.

use serde::{Deserialize, Serialize};

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Whether this is a registry, and how one logs in: `/v2/`.
    Greeting,
    /// A token, from the token service.
    Token,
    /// A manifest or an index.
    Manifest,
    /// An image's config.
    Config,
    /// A layer, or whatever blob no manifest called a config.
    Layer,
    /// Any of them at an address with a signature, where a redirect led to.
    Signed,
}

/// A place in a blob or a manifest, whatever part of it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum At {
    Byte(u64),
    Percent(u64),
}

impl At {
    /// The byte that it is in something of that size.
    pub(super) fn of(self, size: u64) -> u64 {
        match self {
            Self::Byte(byte) => byte.min(size),
            Self::Percent(percent) => size * percent.min(100) / 100,
        }
    }
}

/// How a request is answered wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum How {
    /// With a status and the error that goes with it.
    Status(u16),
    /// The connection is reset at that place.
    Reset(At),
    /// Nothing more comes from that place on, though the connection stands. Healed, it goes on as if nothing had been.
    Hold(At),
    /// So many bytes come a second, until it is healed.
    Slow(u64),
    /// The length is named right, and the connection closed at that place.
    Short(At),
    /// The byte at that place is another one.
    Flip(At),
    /// So many bytes more than there are, the length named likewise.
    Longer(u64),
    /// No length is named, and after what there is bytes come for ever; slowly, since they may be gathered in memory.
    Endless,
    /// To another address.
    Redirect(Redirect),
}

/// Where to. Each address bears a signature, which nobody may repeat: [`SIGNATURE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Redirect {
    /// Onward for ever.
    Loop,
    /// To the same thing without TLS, where it can be had.
    Plain,
    /// To the same thing here: what real registries do with blobs.
    Signed,
}

/// What an address that a registry redirects to has in its query.
pub(crate) const SIGNATURE: &str = "signature-of-the-beds-storage";

/// How a host is met before it has asked for anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Door {
    #[default]
    Good,
    /// A certificate that is not valid yet: what a host sees whose clock is behind.
    Early,
    /// One that is not valid any more.
    Late,
    /// One of an authority that nobody knows.
    Stranger,
    /// One for another name.
    OtherName,
    /// The connection is taken, and that is all.
    Mute,
}

/// A registry that wants a token, which its token service gives to who logs in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Guard {
    /// `user:password`.
    pub(crate) login: String,
    /// How many requests a token is good for.
    pub(crate) uses: Option<u32>,
}

/// One way in which requests of one kind are answered wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rule {
    pub(super) of: Kind,
    pub(super) how: How,
    /// Only so many of them, the first ones.
    pub(super) times: Option<u32>,
}

/// All that is wrong for one host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    pub(super) door: Door,
    pub(super) guard: Option<Guard>,
    pub(super) rules: Vec<Rule>,
}

impl Fault {
    /// Every request of that kind is answered so.
    pub(crate) fn of(of: Kind, how: How) -> Self {
        Self::default().and(of, how)
    }

    /// Only how one comes in is wrong.
    pub(crate) fn door(door: Door) -> Self {
        Self {
            door,
            ..Self::default()
        }
    }

    /// Nothing is wrong, but a token is wanted.
    pub(crate) fn guarded(guard: Guard) -> Self {
        Self {
            guard: Some(guard),
            ..Self::default()
        }
    }

    /// Besides, every request of that kind is answered so; what was said before comes first.
    pub(crate) fn and(mut self, of: Kind, how: How) -> Self {
        let times = None;
        self.rules.push(Rule { of, how, times });
        self
    }

    /// What was said last holds so many times, then what comes is honest.
    pub(crate) fn times(mut self, times: u32) -> Self {
        if let Some(rule) = self.rules.last_mut() {
            rule.times = Some(times);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_byte_or_a_share_and_never_beyond_the_end() {
        assert_eq!(At::Byte(7).of(100), 7);
        assert_eq!(At::Byte(700).of(100), 100);
        assert_eq!(At::Percent(50).of(9), 4);
        assert_eq!(At::Percent(200).of(9), 9);
    }

    #[test]
    fn times_is_of_the_rule_before_it() {
        let fault = Fault::of(Kind::Manifest, How::Status(503))
            .times(2)
            .and(Kind::Layer, How::Slow(9));
        let times: Vec<_> = fault.rules.iter().map(|rule| rule.times).collect();
        assert_eq!(times, [Some(2), None]);
    }
}
