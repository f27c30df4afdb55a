//! VIPs: values of the map `vips`.

/// Values of the map `vips`: what the programs do with packets and connections to a VIP.
///
/// A packet of a flow goes on to its backend whatever the mode is. The programs treat a mode that they do
/// not know as [`VipMode::HANDED_BACK`].
pub struct VipMode;

impl VipMode {
    /// Its frontends serve it.
    pub const SERVED: u32 = 0;
    /// Others serve the address now: what belongs to no flow passes unchanged.
    pub const HANDED_BACK: u32 = 1;
    /// Nobody serves the address: what belongs to no flow is refused.
    pub const GONE: u32 = 2;

    /// Whether what belongs to no flow passes unchanged.
    #[inline(always)]
    #[must_use]
    pub const fn passes(mode: u32) -> bool {
        mode != Self::SERVED && mode != Self::GONE
    }
}
