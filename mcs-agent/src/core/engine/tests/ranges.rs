//! Ranges of ClusterSetIPs that leave out what imports ask for.

use super::*;

fn ranges(world: &mut World, vips: &str, services: Option<&str>) {
    let range = |text: &str| text.parse().unwrap();
    let node = knowing(world.engine.node().clone(), |facts| {
        facts.vip_ranges = vec![range(vips)];
        facts.service_ranges = services.map(|services| [range(services)].into());
    });
    world.engine.set_node(node);
    world.settle();
}

#[test]
fn an_address_that_new_ranges_leave_out_stays_and_is_told() {
    let mut world = World::new(BOUND);
    world.take(lists(0..2, 1));
    ranges(&mut world, "10.0.0.0/24", None);
    assert!(world.engine.vips_outside_ranges().is_empty());
    ranges(&mut world, "10.0.0.1/32", None);
    assert_eq!(world.engine.vips_outside_ranges(), [[10, 0, 0, 2].into()].into());
    assert_eq!(world.backends(), 2);
}

#[test]
fn imports_outside_the_ranges_count_while_nothing_is_served() {
    let outside = |vips, services| {
        let mut world = World::new(BOUND);
        ranges(&mut world, vips, services);
        world.take(lists(0..3, 1));
        world.settle();
        world.engine.imports_outside_ranges()
    };
    assert_eq!(outside("10.9.0.0/24", None), 3);
    assert_eq!(outside("10.9.0.0/24", Some("10.96.0.0/16")), 3);
    assert_eq!(outside("10.9.0.0/24", Some("10.0.0.0/24")), 0, "they are those of Services");
    assert_eq!(outside("10.0.0.1/32", None), 0, "one is served");
    let mut world = World::new(BOUND);
    world.take(lists(0..0, 0));
    assert_eq!(world.engine.imports_outside_ranges(), 0, "there are no ranges");
}
