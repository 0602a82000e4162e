//! What is drawn by chance, the same again for the same seed.

/// A source of draws. Source: splitmix64, Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The draws of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below that one, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// Bytes that no compressor makes shorter.
    pub(crate) fn bytes(mut self, length: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.draw().to_le_bytes());
        words.flatten().take(length).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_draws_the_same_and_another_one_something_else() {
        let draws = |seed| {
            let mut chance = Chance::of(seed);
            [chance.below(1000), chance.below(1000), chance.below(1000)]
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        assert_eq!(Chance::of(7).bytes(19).len(), 19);
    }
}
